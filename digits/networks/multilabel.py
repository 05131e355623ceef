# Small multi-label CNN: predicts any number of labels for an image, such as the objects in it.
#
# Designed for small images, such as 32x32; any size from 16x16 works. Returns one logit for each label of the
# dataset: a label is predicted if its logit is positive, independently of the other labels.
# Recommended settings: Adam, learning rate 0.001, batches of 32, 30 epochs, per-channel mean.
#
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=fixed batch_size=32 train_epochs=30 use_mean=pixel
# kinds: image-multilabel
# images: 16-

from keras import layers


class UserModel(Tower):
    @model_property
    def inference(self):
        net = self.x / 64.0
        for number, filters in enumerate([16, 32, 64], 1):
            net = layers.Conv2D(
                filters,
                3,
                padding="same",
                activation="relu",
                kernel_initializer="he_normal",
                name=f"conv{number}",
            )(net)
            net = layers.MaxPooling2D(2)(net)
        net = layers.Flatten()(net)
        net = layers.Dense(128, activation="relu", kernel_initializer="he_normal", name="fc")(net)
        # No activation: the loss and the predictions apply the sigmoid to these logits.
        return layers.Dense(self.nclasses, name="logits")(net)

    @model_property
    def loss(self):
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=self.y, logits=self.inference))
