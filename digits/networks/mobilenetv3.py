# MobileNetV3: the fastest on photos, also on mobile phones.
#
# Designed for 224x224 color, random crops from 256x256; at least 32x32. 5,507,432 parameters for 1000
# classes, 24,400 of them moving averages. The large variant of the paper.
# Recommended settings: RMSProp with momentum 0.9 and decay 0.9, learning rate 0.002 falling by 10% every
# 2% of 100 epochs, batches of 64, no mean subtraction (the network normalizes its input), crop 224,
# random horizontal flips.
#
# paper: Howard et al., 2019, “Searching for MobileNetV3”, as keras.applications has it.
# settings: solver_type=RMSPROP momentum=0.9 rms_decay=0.9 learning_rate=0.002 lr_policy=step lr_step_size=2
# settings: lr_step_gamma=0.9 batch_size=64 train_epochs=100 use_mean=none crop_size=224 aug_flip=fliplr
# few images: solver_type=ADAM learning_rate=0.001 lr_policy=cosine lr_warmup=5 batch_size=32
# kinds: image-classification image-regression image-multilabel
# smallest: 32
# pretrained: mobilenetv3

import keras


class UserModel(Tower):
    @model_property
    def inference(self):
        net = keras.applications.MobileNetV3Large(
            weights=None,
            input_shape=self.input_shape,
            classes=self.nclasses,
            classifier_activation=None,  # logits, without softmax
            include_preprocessing=True,  # from 0..255 to -1..1
        )
        for layer in net.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                # Validation uses the moving averages. Keras' momentum of 0.999 takes thousands of steps to
                # converge.
                layer.momentum = 0.9
        return digits.scale_output(net(self.x, training=self.is_training))

    @model_property
    def loss(self):
        if self.target.classes:
            accuracy = digits.classification_accuracy(self.inference, self.y)
            self.summaries.append(tf.summary.scalar("accuracy", accuracy))
        return digits.loss(self.inference, self.y)
