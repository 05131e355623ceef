# ResNet-50: the common reference for photos; slow without a GPU.
#
# Designed for 224x224 color, random crops from 256x256; at least 32x32. 25,636,712 parameters for 1000
# classes, 53,120 of them moving averages.
# Recommended settings: SGD with momentum 0.9, learning rate 0.1 for batches of 256 (less for smaller
# ones, in proportion) falling to a tenth every 33%, 90 epochs, no mean subtraction (the network
# normalizes its input), crop 224, random horizontal flips.
#
# paper: He et al., 2015, “Deep Residual Learning for Image Recognition”, as keras.applications has it.
# settings: solver_type=MOMENTUM momentum=0.9 learning_rate=0.0125 lr_policy=step lr_step_size=33 lr_step_gamma=0.1
# settings: batch_size=32 train_epochs=90 use_mean=none crop_size=224 aug_flip=fliplr
# few images: solver_type=ADAM learning_rate=0.001 lr_policy=cosine lr_warmup=5 batch_size=32
# kinds: image-classification image-regression image-multilabel
# smallest: 32
# pretrained: resnet50

import keras

# Weight decay of 0.0001; the gradient of L2(a) is 2a times the weight.
WEIGHT_DECAY = keras.regularizers.L2(0.0001 / 2)


class UserModel(Tower):
    @model_property
    def inference(self):
        net = keras.applications.ResNet50(
            weights=None,
            input_shape=self.input_shape,
            classes=self.nclasses,
            classifier_activation=None,  # logits, without softmax
        )
        for layer in net.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                # Validation uses the moving averages. Keras' momentum of 0.99 takes hundreds of steps to converge.
                layer.momentum = 0.9
            elif layer.trainable_weights:
                layer.kernel.regularizer = WEIGHT_DECAY
        return digits.scale_output(net(self.prepared(self.x), training=self.is_training))

    def prepared(self, x):
        """Convert to BGR and subtract ImageNet's mean, as for Keras' weights of this network."""
        if self.input_shape[2] == 3:
            return digits.rgb_to_bgr(x) - [103.939, 116.779, 123.68]
        return x - 118.0

    @model_property
    def loss(self):
        if self.target.classes:
            accuracy = digits.classification_accuracy(self.inference, self.y)
            self.summaries.append(tf.summary.scalar("accuracy", accuracy))
        return digits.loss(self.inference, self.y)
